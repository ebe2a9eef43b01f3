package uimessage

import (
	"bytes"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// Anything at all as a file: no panic, and what can be read is exported as an equal array, and then as the same bytes.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`[]`))
	f.Add([]byte(`[{"id":"","role":"user","parts":[{"type":"data-empty","data":{}}]},{"id":"","role":"assistant","metadata":{"mooring":{"role":null}},"parts":[]}]`))
	f.Add([]byte(`[{"id":"1","role":"assistant","parts":[{"type":"tool-x","toolCallId":"c","state":"output-denied","approval":{"id":"a","approved":false}},{"type":"step-start"},{"type":"data-step-start","id":"p","data":{}}]}]`))
	// Small ones, which the fuzzer makes something of.
	list, _ := elements(exported(f, putsOf(opencodetest.Read(f, opencodetest.Names[0]+".export.json", limits))))
	for _, text := range list {
		if len(text) < 1500 {
			f.Add(array(text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		Recognises(data)
		if _, err := Read(bytes.NewReader(data), Options{Limits: limits}); err == nil {
			checkRoundTrip(t, data, false)
		}
	})
}
