//go:build !unix

package privatedir

import "io/fs"

func ownerOf(fs.FileInfo) (id int, known bool) { return 0, false }

func writableByAll(fs.FileMode) bool { return false }
