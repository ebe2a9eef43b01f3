//go:build !unix

package privatedir

import "io/fs"

func ownerOf(fs.FileInfo) (id int, known bool) { return 0, false }

func namesOf(fs.FileInfo) uint64 { return 1 }

func writableByAll(fs.FileMode) bool { return false }
