package e2e

// A recording as a plan: the batches that an agent would commit of it, and the
// state that they must fold to.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// recordedBatches reads a recording's syncs as batches for a session.
func recordedBatches(t testing.TB, name string, to capability.Ref) []planBatch {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recordings, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var batches []planBatch
	scan := bufio.NewScanner(bytes.NewReader(text))
	scan.Buffer(nil, len(text)+1)
	for scan.Scan() {
		var request struct {
			Path string
			Body struct {
				Data []struct {
					Type string
					Data json.RawMessage
				}
			}
		}
		if json.Unmarshal(scan.Bytes(), &request) != nil || !strings.HasSuffix(request.Path, "/sync") {
			continue
		}
		var ops []planOp
		for _, item := range request.Body.Data {
			for _, payload := range recordedItem(t, item.Type, item.Data) {
				ops = append(ops, op("put", arg("key", payload.key), planArg{Name: "payload", JSON: payload.text}))
			}
		}
		if len(ops) > 0 {
			batches = append(batches, batch(to, ops...))
		}
	}
	return batches
}

type recordedPut struct {
	key  string
	text json.RawMessage
}

// recordedItem gives an item's puts by opencode's fold keys.
func recordedItem(t testing.TB, kind string, data json.RawMessage) []recordedPut {
	t.Helper()
	var id struct{ ID, MessageID string }
	_ = json.Unmarshal(data, &id) // arrays have no ids
	switch kind {
	case "session":
		return []recordedPut{{"session", data}}
	case "message":
		return []recordedPut{{"message/" + id.ID, data}}
	case "part":
		return []recordedPut{{"part/" + id.MessageID + "/" + id.ID, data}}
	case "session_diff":
		return []recordedPut{{"session_diff", json.RawMessage(`{"diff":` + string(data) + `}`)}}
	case "model":
		var models []json.RawMessage
		if json.Unmarshal(data, &models) != nil {
			models = []json.RawMessage{data}
		}
		var puts []recordedPut
		for _, m := range models {
			_ = json.Unmarshal(m, &id) // one without an id shows as a bad key
			puts = append(puts, recordedPut{"model/" + id.ID, m})
		}
		return puts
	}
	t.Fatalf("an item of unknown type %q", kind)
	return nil
}
