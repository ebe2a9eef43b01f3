package session

// Pages of trees of refs.

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
)

// TreeRow is a ref in a tree, as shown to a holder who may revoke it.
type TreeRow struct {
	Grant    *capability.Grant
	Epoch    uint64 // its session's; 0 for a space's ref
	Uses     uint64 // calls and ops under it
	LastUsed int64  // time of the last use, Unix ms; 0 never
}

// TreeQuery is a request for a page of a tree.
type TreeQuery struct {
	Under string // the root of the tree; "": the ref of the call
	After string // the previous page's TreePage.Next; "": from the start
	Limit int    // the maximum number of refs
}

// TreePage is a page of the tree below a ref in one snapshot.
type TreePage struct {
	Access
	// Lineage has the ids from the requested ref up to the root that all refs descend from; empty
	// if there is no such ref.
	Lineage []string
	// Rows are in depth-first order, siblings in order of creation: each ref is followed by its
	// descendants.
	Rows []TreeRow
	Next string // the After of the next page; "": there is none
	// Moved reports that the position After no longer exists: Rows is empty.
	Moved bool
}

// TreePosition returns the position in a tree after the first ref of line, which has the ids from
// that ref up to the tree's root. Refs are never removed from a tree, but a rotation moves the
// children of one ref below another, elsewhere in the order. So a position names the whole line.
func TreePosition(line []string) string {
	return line[0] + treePositionSep + lineageSum(line)
}

const treePositionSep = "~"

func lineageSum(line []string) string {
	sum := sha256.Sum256([]byte(strings.Join(line, " ")))
	return hex.EncodeToString(sum[:8])
}

// TreePositionRef returns the ref that a position is after.
func TreePositionRef(place string) string {
	ref, _, _ := strings.Cut(place, treePositionSep)
	return ref
}

// IsTreePosition reports whether a position is after the first of line. A position that is only a
// ref's id, as from clients of earlier versions, is wherever that ref is.
func IsTreePosition(place string, line []string) bool {
	ref, sum, whole := strings.Cut(place, treePositionSep)
	return len(line) > 0 && line[0] == ref && (!whole || sum == lineageSum(line))
}
