package opencodetest

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// Request is one request of a recording.
type Request struct {
	Method, Path string
	Body         struct {
		SessionID string
		Data      []json.RawMessage // items of a sync
	}
	Response struct {
		Items int `json:"__items"` // that the real server gave
	}
}

// Requests reads the requests of a recording, by its name.
func Requests(t testing.TB, name string) (all []Request) {
	t.Helper()
	f, err := os.Open(Path(t, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("the recording has %d requests: %v", len(all), err)
	}
	return all
}
