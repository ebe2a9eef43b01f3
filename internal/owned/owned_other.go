//go:build !unix

// Package owned gives files their owners, where files have such in a way that it knows.
package owned

import (
	"io/fs"
	"os"
)

// Like does nothing here.
func Like(*os.File, fs.FileInfo) {}
