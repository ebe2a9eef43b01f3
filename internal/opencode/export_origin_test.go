package opencode_test

// What an export says that its session was forked from, and one that says it wrongly.

import (
	"fmt"
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
