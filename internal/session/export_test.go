package session

// What a ref shows, for the tests of it.
var VisibleEvents = visibleEvents

// List returns all events.
func (u UnscopedEvents) List() []*Event { return u.list }

// ReadSetOf returns what a submission reads first.
func ReadSetOf(sub Submission) *ReadSet { return initialReadSet([]Submission{sub}) }
