"""What all tests share: `async def` tests run on an event loop of their own, and Hypothesis throws no dice."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import HealthCheck, settings

from tests.jumping_loop import JumpingLoop

IN_MEMORY = {"seams"}
"""Folders whose tests touch nothing real: their clock jumps, so that they neither wait nor miss a time limit."""

# A landing must not depend on dice, nor on how busy the machine is. Those marked `long` throw dice.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what machines say now into their transcripts")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    jumps = pyfuncitem.path.parent.name in IN_MEMORY
    with asyncio.Runner(loop_factory=JumpingLoop if jumps else None) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True
