"""LLVM's part in the compilation of a kernel.

Numba optimises each function three times, each kernel that another one calls for itself and within
its caller, and makes machine code of all of them. Here everything is optimised once: within the
kernel that Python calls, for which alone there is machine code.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary


class EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel that Python calls, and of all kernels that it calls."""

    def _optimize_functions(self, module: Any) -> None:
        """The whole is optimised, once it is complete; only LLVM's layout of data is set."""
        module.data_layout = self._codegen._data_layout  # noqa: SLF001  as in the base class

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()  # noqa: SLF001  as in the base class
        manager.run(self._final_module, builder)


class CalledLibrary(EntryLibrary):
    """The code of a kernel that other kernels call: intermediate form only."""

    def _optimize_final_module(self) -> None:
        """Its callers optimise it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True
