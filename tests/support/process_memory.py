"""The resident memory of processes that a test starts."""

import subprocess
import time
from pathlib import Path

import psutil


def _peak_mib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")), default=0)


def peak_mib(process: subprocess.Popen[str]) -> int:
    """Wait for the process: the largest resident MiB that it, or a process below it, has had. Needs Linux."""
    peak = 0
    while process.poll() is None:
        try:
            below = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            break
        peak = max([peak, *(_peak_mib(pid) for pid in (process.pid, *(child.pid for child in below)))])
        time.sleep(0.05)
    process.wait()
    return peak
