//go:build !unix

package acprun

import (
	"fmt"
	"os"
)

// lockedFile opens a file; here nothing keeps another process from it.
func lockedFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return f, nil
}
