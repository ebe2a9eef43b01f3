//go:build !unix

// No system calls of our own: package net reads and writes.

package socket

import "syscall"

const canPoll = false // so that nothing below is called

func readable(uintptr) bool { return true }

func receive(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }

func transmit(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }
