"""A kernel whose ports somebody else has taken in the meantime."""

import socket

from jupyter_client.manager import KernelManager


def start_after_its_port_was_taken(transport: str) -> str:
    """Start a kernel and take the port that it was promised before it can; what becomes of it."""
    manager = KernelManager(kernel_name="python3", transport=transport)
    write = manager.write_connection_file
    thief = socket.socket()

    def write_and_lose_the_port(**details: object) -> None:
        write(**details)
        thief.bind(("127.0.0.1", manager.shell_port))
        thief.listen()

    manager.write_connection_file = write_and_lose_the_port
    with thief:
        manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            return "it is ready"
        except RuntimeError as problem:
            return str(problem)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def test_over_tcp_it_dies():
    assert start_after_its_port_was_taken("tcp").startswith("Kernel died")


def test_kernels_of_the_tests_have_no_ports_to_lose(tmp_path):
    """Two at once, each in a folder of its own and with variables of its own."""
    managers = [KernelManager(kernel_name="python3") for _ in range(2)]
    assert [manager.transport for manager in managers] == ["ipc", "ipc"]
    clients = []
    try:
        for number, manager in enumerate(managers):
            folder = tmp_path / str(number)
            folder.mkdir()
            manager.start_kernel(cwd=folder)
            clients.append(manager.client())
            clients[-1].start_channels()
        for number, client in enumerate(clients):
            client.wait_for_ready(timeout=60)
            client.execute_interactive(f"mine = {number}", timeout=60)
        for number, client in enumerate(clients):
            code = (
                f"import os; assert (mine, os.path.basename(os.getcwd())) == ({number}, '{number}')"
            )
            reply = client.execute_interactive(code, timeout=60)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        for client in clients:
            client.stop_channels()
        for manager in managers:
            manager.shutdown_kernel(now=True)
    assert [list((tmp_path / name).iterdir()) for name in "01"] == [[], []]
