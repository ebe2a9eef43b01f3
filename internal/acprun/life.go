package acprun

// The life of a prompt: its stages, and what becomes of it when its runner or its agent has ended.

// Stage is how far a prompt has come; the journal has its name.
type Stage string

// The stages, in their order.
const (
	Claiming Stage = "claiming"
	Taken    Stage = "taken"
	Handing  Stage = "handing"
	Handed   Stage = "handed"
	Heard    Stage = "heard"
	Done     Stage = "done"
)

// Fate is what becomes of a prompt.
type Fate int

// The fates of prompts.
const (
	Nothing     Fate = iota + 1 // it has ended
	GoOn                        // it is handed over now
	Unknown                     // nobody knows whether the agent has got it
	Interrupted                 // the agent has got it, and was interrupted
)

// FateOf returns what becomes of a prompt whose runner or agent has ended. inHistory says that the agent's history of the
// session has our id of the message.
func FateOf(s Stage, inHistory bool) Fate {
	switch s {
	case Done:
		return Nothing
	case Claiming, Taken:
		return GoOn
	case Handing, Handed:
		if inHistory {
			return Interrupted
		}
		return Unknown
	case Heard:
		return Interrupted
	}
	return Unknown // of a newer version, perhaps
}
