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


def test_kernels_of_the_tests_have_no_ports_to_lose():
    manager = KernelManager(kernel_name="python3")
    assert manager.transport == "ipc"
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        reply = client.execute_interactive("assert 1 + 1 == 2", timeout=60)
        assert reply["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
