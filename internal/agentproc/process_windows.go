package agentproc

// On Windows a process and all that it starts are in a job, which ends with the process that has it open.

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

type platform struct{ job windows.Handle }

func (p *Process) prepare() (unlock func()) {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP} // a Ctrl-C is not for it
	return func() {}
}

// adopt puts the process into a job. What it has started before is not in it: it had a moment.
func (p *Process) adopt() error {
	p.id = Identity{Mark: p.cfg.Mark, PID: p.cmd.Process.Pid}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make a job: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE}}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err == nil {
		var h windows.Handle
		if h, err = windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(p.id.PID)); err == nil {
			err = windows.AssignProcessToJobObject(job, h)
			_ = windows.CloseHandle(h)
		}
	}
	if err != nil {
		_ = windows.CloseHandle(job)
		return fmt.Errorf("put the agent into a job: %w", err)
	}
	p.job = job
	return nil
}

// terminate does nothing: there is no signal that a program without a window is sure to get.
func (p *Process) terminate() {}

func (p *Process) kill(most time.Duration) error {
	defer windows.CloseHandle(p.job)
	_ = windows.TerminateJobObject(p.job, 1)
	select {
	case <-p.exited:
		return nil
	case <-time.After(most):
		return leftError([]int{p.id.PID}, "it does not end, though it was killed")
	}
}

// NewIdentity returns what a process that is going to be started can be found by.
func NewIdentity(mark string) Identity { return Identity{Mark: mark} }

// EndLeft has nothing to do: the job has ended with the process that started it.
func EndLeft(Identity, time.Duration) error { return nil }
