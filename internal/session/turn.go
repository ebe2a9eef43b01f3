package session

// The lifecycle of a turn, as a table:
//
//	             begin       append, resume   lapse         finish
//	(none)       streaming   not_found        not_found     not_found
//	streaming    turn_open   streaming        interrupted   its end state
//	interrupted  turn_open   streaming        interrupted   its end state
//	end states   turn_ended  turn_ended       turn_ended    turn_ended
//
// Interrupted is a notice and not an end: it is visible to all readers, and the next op of the
// turn's own stream reverts it.

import "github.com/mooring-rpc/mooring/fault"

// TurnStep is a step in the life of a turn.
type TurnStep uint8

// The steps of a turn.
const (
	StepBegin  TurnStep = iota
	StepResume          // an op of its own stream
	StepLapse           // its lease expired, or the server started
	StepComplete
	StepFail
	StepAbort
	numSteps
)

// transition is a cell of the table: a next state, or the code of the refusal.
type transition struct {
	to   TurnStatus
	code fault.Code
}

var transitions = [Aborted + 1][numSteps]transition{
	0: {
		StepBegin:  {to: Streaming},
		StepResume: {code: fault.NotFound}, StepLapse: {code: fault.NotFound},
		StepComplete: {code: fault.NotFound}, StepFail: {code: fault.NotFound}, StepAbort: {code: fault.NotFound},
	},
	Streaming: {
		StepBegin:  {code: fault.TurnOpen},
		StepResume: {to: Streaming}, StepLapse: {to: Interrupted},
		StepComplete: {to: Completed}, StepFail: {to: Failed}, StepAbort: {to: Aborted},
	},
	Interrupted: {
		StepBegin:  {code: fault.TurnOpen},
		StepResume: {to: Streaming}, StepLapse: {to: Interrupted},
		StepComplete: {to: Completed}, StepFail: {to: Failed}, StepAbort: {to: Aborted},
	},
	Completed: endedTransitions, Failed: endedTransitions, Aborted: endedTransitions,
}

var endedTransitions = [numSteps]transition{
	{code: fault.TurnEnded}, {code: fault.TurnEnded}, {code: fault.TurnEnded},
	{code: fault.TurnEnded}, {code: fault.TurnEnded}, {code: fault.TurnEnded},
}

// Next returns the state that step leads to from s (0: no turn was begun), or an error if it is not
// possible.
func (s TurnStatus) Next(step TurnStep) (TurnStatus, *fault.Error) {
	m := transitions[s][step]
	switch m.code {
	case fault.None:
		return m.to, nil
	case fault.NotFound:
		return s, fault.NotFound.With("no turn was begun for this message: begin it first, or put parts whole")
	case fault.TurnOpen:
		return s, fault.TurnOpen.With("the turn of this message has begun already")
	default:
		return s, fault.TurnEnded.With("the turn of this message is %s: put late parts whole, or begin another message", s)
	}
}

// Open reports whether a turn in this state can still be appended to and ended.
func (s TurnStatus) Open() bool { return s == Streaming || s == Interrupted }

// String returns the state's name, as in finalize's arguments.
func (s TurnStatus) String() string {
	switch s {
	case Streaming:
		return "streaming"
	case Interrupted:
		return "interrupted"
	case Completed:
		return "completed"
	case Failed:
		return "failed"
	case Aborted:
		return "aborted"
	}
	return "none"
}

// EndStep returns the step for finalize's status argument.
func EndStep(status string) (TurnStep, bool) {
	switch status {
	case "completed":
		return StepComplete, true
	case "failed":
		return StepFail, true
	case "aborted":
		return StepAbort, true
	}
	return 0, false
}
