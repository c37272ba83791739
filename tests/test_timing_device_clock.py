"""The device clock against a driver that writes down what it is asked: order, streams, joins, and what happens without them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tilecast.sandbox.harness.worker import device_clock
from tilecast.sandbox.harness.worker.device_clock import DeviceClock, DeviceClockError

DRIVER = r"""
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>
static char log_text[65536];
static size_t used;
static uintptr_t next_event = 1;
static size_t persisting = 4096;
int fail_join, fail_sync;
#define SAY(...) used += snprintf(log_text + used, sizeof log_text - used, __VA_ARGS__)
const char *said(void) { return log_text; }
void forget(void) { used = 0; log_text[0] = 0; persisting = 4096; fail_join = fail_sync = 0; }
int cuCtxGetCurrent(void **c) { *c = (void *)0x77; return 0; }
int cuCtxSynchronize(void) { SAY("sync "); return fail_sync ? 700 : 0; }
int cuCtxGetLimit(size_t *v, int kind) { *v = kind == 6 ? persisting : 0; return 0; }
int cuCtxSetLimit(int kind, size_t v) { persisting = v; SAY("limit%d=%zu ", kind, v); return 0; }
int cuCtxResetPersistingL2Cache(void) { SAY("reset "); return 0; }
int cuEventCreate(void **e, unsigned flags) { *e = (void *)(next_event++); SAY("event%u ", flags); return 0; }
int cuEventRecord(void *e, void *s) { SAY("record%lu@%p ", (unsigned long)(uintptr_t)e, s); return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { *ms = 10.0f * (uintptr_t)a + (uintptr_t)b; return 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned f) { SAY("wait%lu ", (unsigned long)(uintptr_t)e); return 0; }
int cuMemAlloc_v2(uint64_t *p, size_t n) { *p = 0xABC000; SAY("alloc%zu ", n); return 0; }
int cuMemsetD32Async(uint64_t p, unsigned v, size_t n, void *s) { SAY("fill%lx:%u*%zu ", (long)p, v, n); return 0; }
int cuGetErrorName(int code, const char **t) { *t = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "?"; return 0; }
int cuCtxRecordEvent(void *c, void *e) { if (fail_join) return 801; SAY("join%p:%lu ", c, (unsigned long)(uintptr_t)e); return 0; }
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is needed to build the recording driver")
    folder: Path = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", folder / "driver.so", folder / "driver.c"], check=True)
    library = ctypes.CDLL(str(folder / "driver.so"))
    library.said.restype = ctypes.c_char_p
    return library


@pytest.fixture
def clock(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> DeviceClock:
    monkeypatch.setattr(device_clock.ctypes, "CDLL", lambda name: driver)
    driver.forget()
    return DeviceClock()


def said(driver: ctypes.CDLL) -> list[str]:
    text = driver.said().decode().split()
    driver.forget()
    return text


def test_a_cold_call_in_order(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(1, 1024)
    assert said(driver) == ["event2", "event0", "event0", "alloc1024"]
    clock.synchronize()
    clock.forget_persisting_lines()
    clock.flush(0)
    clock.start(0)
    clock.stop(0)
    words = said(driver)
    assert words[:4] == ["sync", "limit6=0", "reset", "fillabc000:1*256"]
    start, join, wait, stop = words[4:]
    assert start.startswith("record") and join.startswith("join0x77:") and stop.startswith("record")
    assert wait.removeprefix("wait") == join.rpartition(":")[2], (
        "the stream waits for the context's event, then the end marker"
    )
    assert start != stop and clock.synchronised_joins == 0


def test_nothing_is_allocated_twice(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(2, 1024)
    said(driver)
    clock.prepare(2, 512)
    assert said(driver) == []
    clock.prepare(3, 1024)
    assert said(driver) == ["event0", "event0"]


def test_each_flush_writes_another_value(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(2, 64)
    said(driver)
    clock.flush(0)
    clock.flush(1)
    assert said(driver) == ["fillabc000:1*16", "fillabc000:2*16"]


def test_an_older_driver_synchronises_before_the_end_marker(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(1, 0)
    said(driver)
    ctypes.c_int.in_dll(driver, "fail_join").value = 1
    clock.start(0)
    clock.stop(0)
    words = said(driver)
    assert words[1] == "sync" and words[2].startswith("record") and clock.synchronised_joins == 1


def test_times_come_from_the_right_pair(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(2, 0)
    first, second = clock.elapsed_ms(0), clock.elapsed_ms(1)
    # The recording driver answers 10 a + b for events numbered in the order of their making.
    assert second - first == pytest.approx(22.0)


def test_a_fault_of_the_device_is_named(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(1, 0)
    ctypes.c_int.in_dll(driver, "fail_sync").value = 1
    with pytest.raises(DeviceClockError, match="cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"):
        clock.synchronize()


def test_several_flushes_keep_the_device_busy(driver: ctypes.CDLL, clock: DeviceClock) -> None:
    clock.prepare(1, 8_000_000)
    driver.forget()
    clock.flush(0, 3)
    assert driver.said().count(b"fill") == 3
