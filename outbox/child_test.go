package outbox

// The test binary run again, as a process to be killed.

const childVar = "MOORING_OUTBOX_TEST_CHILD"

func child(kind string) int { return 0 }
