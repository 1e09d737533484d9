//go:build !linux

package engine

import (
	"os"
	"syscall"
)

// childAttr puts the child in a process group of its own, so that Ctrl-C at a terminal reaches only us and we stop the
// child in order. The end of its standard input tells it when we are gone.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func selfPath() (string, error) { return os.Executable() }
