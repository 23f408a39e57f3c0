"""Arguments are after a call what they were before, but for those that the contract gives away."""

from ._law import Call, Law, Watch
from ._snapshot import difference, frozen


def watch(call: Call) -> Watch:
    given = {call.contract.in_place, *call.contract.changes, *call.contract.moves}
    before = {name: frozen(v) for name, v in call.arguments.items() if name not in given}
    after = {name: call.arguments[name] for name in before}
    yield
    for name, value in after.items():
        if at := difference(before[name], value):
            what = f"`{name}`" if at == "itself" else f"`{name}{at}`"
            return (
                f"the argument {what} is not what it was before the call, and whoever called still "
                "needs it: work on a copy"
            )
    return None


LAW = Law(watch)
