package fault

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// What a peer is told of a defect leads to the log's line on it, and gives nothing else
// away.
func TestUnexpectedNamesItsIncident(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	cause := errors.New("disk 7 burns")
	first := From(logger, cause, "commit", "session", "ses_1", "batch", "b_1")
	second := From(logger, cause, "commit")
	if first.Code != Internal || !errors.Is(first, cause) || strings.Contains(first.Error(), "burns") || first.Message == second.Message {
		t.Errorf("the peer has %q, then %q", first, second)
	}
	for i, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		var said struct{ Incident, Doing, Error, Session, Batch string }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatal(err)
		}
		message := []*Error{first, second}[i].Message
		if said.Incident == "" || !strings.HasSuffix(message, "at incident "+said.Incident) || said.Error != "disk 7 burns" || said.Doing != "commit" {
			t.Errorf("the peer has %q, the log %s", message, line)
		}
		if i == 0 && (said.Session != "ses_1" || said.Batch != "b_1") {
			t.Errorf("logged %s", line)
		}
	}
}
