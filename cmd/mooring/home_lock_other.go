//go:build !unix

// Systems without file locks: imports do not wait for one another.

package main

import "context"

// lockFolder does nothing here: of two first imports of one file at the same moment one may be
// refused (already_exists), and has to be repeated.
func lockFolder(context.Context, string) (unlock func(), err error) { return func() {}, nil }
