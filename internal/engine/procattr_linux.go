package engine

import "syscall"

// childAttr puts the child in a process group of its own, so that Ctrl-C at a terminal reaches only us and we stop the
// child in order, and has the kernel tell it when we are gone. The kernel watches the *thread* that forked, which is why
// the caller locks its thread for the child's life.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// selfPath stays right when the file was replaced by an upgrade while we run.
func selfPath() (string, error) { return "/proc/self/exe", nil }
