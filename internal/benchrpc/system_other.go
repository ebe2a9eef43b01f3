//go:build !linux

package main

// Systems without these statistics.

const canBind = false

func onOneCore(start func() error) error { return start() }

func residentBytes(string) (int64, error) { return 0, nil }
