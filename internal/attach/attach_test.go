package attach

import (
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// What cannot be done now does not have the loop turn for nothing.
func TestWhatIsDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	past, soon := now.Add(-time.Minute), now.Add(time.Minute)
	for _, c := range []struct {
		what string
		a    *attachment
		want time.Time // zero: nothing
	}{
		{"opencode is away", &attachment{behind: true, tryAt: past, idleAt: past, prompts: prompts{lookAt: past}}, time.Time{}},
		{"it is read anew later", &attachment{open: true, behind: true, tryAt: soon, idleAt: past, prompts: prompts{lookAt: past}}, soon},
		{"a turn has ended", &attachment{open: true, tryAt: past, idleAt: soon}, soon},
		{"a prompt is looked at", &attachment{open: true, prompts: prompts{lookAt: past}}, past},
		{"a claim is renewed", &attachment{prompts: prompts{current: &prompt{Claim: 1}, renewed: soon.Add(-renewEvery)}}, soon},
	} {
		c.a.rec = heardBy(t, now)
		if got := c.a.due(); c.want.IsZero() && time.Until(got) < 50*time.Minute || !c.want.IsZero() && !got.Equal(c.want) {
			t.Errorf("%s: due in %s", c.what, time.Until(got))
		}
	}
	a := &attachment{rec: heardBy(t, now, `session.updated {"info":{"id":"ses_1"}}`)}
	if got := a.due(); !got.Equal(now.Add(gatherFor)) {
		t.Errorf("what was heard is put in %s", time.Until(got))
	}
}

// A failure that passes is said once, and tried again ever later; one that does not ends the tie.
func TestFailures(t *testing.T) {
	t.Parallel()
	var said []string
	a := &attachment{cfg: Config{Report: func(line string) { said = append(said, line) }}, ctx: t.Context(), id: "ses_1"}
	fails := func(err error) error { return a.ask("do it", func() error { return err }) }
	for _, err := range []error{opencodeapi.ErrAway, fault.DiskFull.With("no room"), fault.DiskFull.With("no room"), &opencodeapi.StatusError{Status: 500, Text: "oops"}} {
		a.behind = false
		if got := fails(err); got != nil || !a.behind || !a.tryAt.After(time.Now()) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if len(said) != 2 {
		t.Errorf("said is %q", said)
	}
	for range 10 {
		_ = fails(opencodeapi.ErrAway)
	}
	if a.retry != retryLast {
		t.Errorf("the last pause is %s", a.retry)
	}
	if err := fails(&opencodeapi.StatusError{Status: 404, Text: "no such session"}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a session that is not there: %v", err)
	}
	if err := errors.New("other"); !errors.Is(fails(err), err) {
		t.Error("an error is swallowed")
	}
}
