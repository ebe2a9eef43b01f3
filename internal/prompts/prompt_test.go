package prompts

import "testing"

// How a prompt ended follows from what became of its request.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]Outcome{
		`{"state":"answered","payload":{"stopReason":"end_turn"}}`:           {Reason: "stop"},
		`{"state":"answered","payload":"fine"}`:                              {Reason: "stop"},
		`{"state":"answered","payload":{"stopReason":"max_tokens"}}`:         {Reason: "length"},
		`{"state":"answered","payload":{"stopReason":"refusal"}}`:            {Reason: "content-filter"},
		`{"state":"answered","payload":{"stopReason":"max_turn_requests"}}`:  {Reason: "other"},
		`{"state":"answered","payload":{"stopReason":"cancelled"}}`:          {Aborted: "stopped"},
		`{"state":"answered","payload":{"error":"out of ideas"}}`:            {Failed: "out of ideas"},
		`{"state":"withdrawn","reason":"not now"}`:                           {Aborted: "not now"},
		`{"state":"withdrawn"}`:                                              {Aborted: "the prompt was withdrawn"},
		`{"state":"expired"}`:                                                {Failed: "no agent has taken the prompt in time"},
		`{"state":"unknown","reason":"nobody knows: the runner was killed"}`: {Failed: "nobody knows: the runner was killed"},
	} {
		var p Prompt
		if p.became([]byte(state)); p.Outcome() != want {
			t.Errorf("%s ends as %+v", state, p.Outcome())
		}
	}
}
