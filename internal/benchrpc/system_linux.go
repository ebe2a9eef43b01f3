package main

// Statistics and limits of processes on Linux.

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// canBind says that onOneCore works.
const canBind = true

// onOneCore calls start, which starts a process, so that all of that process's
// threads run on one core: a child has the binding of the thread that made it.
func onOneCore(start func() error) (err error) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("affinity: %w", err)
	}
	last := len(all)*64 - 1
	for !all.IsSet(last) {
		last--
	}
	one.Set(last) // the last one: the first often serves interrupts
	defer func() {
		e := unix.SchedSetaffinity(0, &all)
		if e == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with its goroutine
		}
		err = errors.Join(err, e)
	}()
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("affinity: %w", err)
	}
	return start()
}

// residentBytes is how much memory a process holds, by its id or "self".
func residentBytes(pid string) (int64, error) {
	text, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &size, &resident); err != nil {
		return 0, fmt.Errorf("statm: %w", err)
	}
	return resident * int64(os.Getpagesize()), nil
}
