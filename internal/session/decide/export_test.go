package decide

import (
	"github.com/mooring-rpc/mooring/internal/session"
)

// ReadSetOf returns what a submission reads first.
func ReadSetOf(sub Submission) *session.ReadSet { return initialReadSet([]Submission{sub}) }
