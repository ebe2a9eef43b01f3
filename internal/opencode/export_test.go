package opencode_test

// What an export says, and whether an import reads it back.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

func TestExportedOrigin(t *testing.T) {
	t.Parallel()
	const id = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, o := range []opencode.Origin{{}, {id, 18446744073709551615, ""}, {id, 3, "msg_1"}} {
		doc := opencode.NewExport([]opencode.Put{{Key: "session", Payload: []byte(`{"id":"ses_x"}`)}}, "ses_x")
		doc.Origin = o
		var text strings.Builder
		if _, err := doc.WriteTo(&text); err != nil {
			t.Fatal(err)
		}
		rec, err := opencode.ReadRecording(strings.NewReader(text.String()), opencodetest.Limits)
		if err != nil || rec.Origin != o {
			t.Errorf("%+v is read as %+v, %v, from %s", o, rec.Origin, err, text.String())
		}
	}
	for _, said := range []string{
		`7`, `{}`, `{"session":"ses_x","cursor":3}`, `{"session":"` + id + `"}`, `{"session":"` + id + `","cursor":-3}`, `{"session":"` + id + `","cursor":"3"}`,
		`{"session":"` + id + `","cursor":3,"message":"a/b"}`,
	} {
		_, err := opencode.ReadRecording(strings.NewReader(`{"info":{"id":"ses_x"},"messages":[],"origin":`+said+`}`), opencodetest.Limits)
		if !strings.Contains(fmt.Sprint(err), "an origin that is not") {
			t.Errorf("%s: %v", said, err)
		}
	}
}

// TestExportedIDs: values without their ids, or with others', are exported with those of their keys, and are read back under these.
func TestExportedIDs(t *testing.T) {
	t.Parallel()
	puts := []opencode.Put{
		{Key: "session", Payload: []byte(`{"title":"No id"}`)},
		{Key: "message/msg_1", Payload: []byte(`{}`)},
		{Key: "part/msg_1/a@b", Payload: []byte(`{"type":"text","text":"{\"id\":1}"}`)},
		{Key: "message/msg_2", Payload: []byte(`{"role":"user","id":"msg_1","x":{"id":"msg_2"}}`)},
		{Key: "part/msg_2/prt_1", Payload: []byte(`{"id":7,"messageID":null,"type":"text"}`)},
		{Key: "part/msg_2/prt_2", Payload: []byte(`{"id":"prt_2","messageID":"msg_2"}`)},
	}
	var text, again strings.Builder
	_, err := opencode.NewExport(puts, "ses_x").WriteTo(&text)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := opencode.ReadRecording(strings.NewReader(text.String()), opencodetest.Limits)
	if err != nil {
		t.Fatalf("%v, from %s", err, text.String())
	}
	read := foldPuts(rec)
	want := []string{
		`{"id":"ses_x","title":"No id"}`, `{"id":"msg_1"}`, `{"id":"a@b","messageID":"msg_1","type":"text","text":"{\"id\":1}"}`,
		`{"role":"user","id":"msg_2","x":{"id":"msg_2"}}`, `{"id":"prt_1","messageID":"msg_2","type":"text"}`, `{"id":"prt_2","messageID":"msg_2"}`,
	}
	for i, p := range puts {
		if at := slices.IndexFunc(read, func(r opencode.Put) bool { return r.Key == p.Key }); at < 0 || string(read[at].Payload) != want[i] {
			t.Errorf("%s: read are %s; want %s", p.Key, read, want[i])
		}
	}
	if _, err := opencode.NewExport(read, "ses_y").WriteTo(&again); err != nil || again.String() != text.String() || len(read) != len(puts) {
		t.Errorf("exported again, %d values of %d: %v, %s", len(read), len(puts), err, again.String())
	}
}
