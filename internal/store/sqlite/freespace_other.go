//go:build !linux && !darwin && !freebsd && !windows

package sqlite

import "errors"

func freeSpaceAt(string) (bytes uint64, err error) { return 0, errors.ErrUnsupported }
