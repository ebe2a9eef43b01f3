package jsonpatch

// Anything at all, as values and patches: no panic, nothing but JSON text comes out, and where both are objects that
// encoding/json reads in one way, the meaning is RFC 7396's.

import (
	"reflect"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func FuzzMerge(f *testing.F) {
	for _, c := range readVectors(f).Merge {
		f.Add([]byte(c.Value), []byte(c.Patch))
	}
	f.Fuzz(func(t *testing.T, value, patch []byte) {
		got, made, err := Merge(value, patch)
		checkMade(t, value, got, made)
		sound := ledger.IsJSON(patch) && (len(value) == 0 || ledger.IsJSON(value))
		if err != nil {
			if fault.CodeOf(err) != fault.BadPayload || got != nil {
				t.Fatalf("%q and %q: %q, %v", value, patch, got, err)
			}
			return
		}
		if !sound || !ledger.IsJSON(got) {
			t.Fatalf("%q and %q: %q", value, patch, got)
		}
		if again, _, err := Merge(got, patch); err != nil || string(again) != string(got) {
			t.Fatalf("%q and %q: %q, merged again %q, %v", value, patch, got, again, err)
		}
		if !utf8.Valid(value) || !utf8.Valid(patch) {
			return
		}
		var had any
		if len(value) > 0 {
			had = parse(string(value))
		}
		if want := mergePatch(had, parse(string(patch))); !reflect.DeepEqual(parse(string(got)), want) {
			t.Fatalf("%q and %q: %q, which does not mean %v", value, patch, got, want)
		}
	})
}

func FuzzAdd(f *testing.F) {
	for _, c := range readVectors(f).Add {
		f.Add([]byte(c.Value), c.Member, c.By)
	}
	f.Fuzz(func(t *testing.T, value []byte, member string, by int64) {
		got, made, err := Add(value, member, by)
		checkMade(t, value, got, made)
		if err != nil {
			if fault.CodeOf(err) != fault.BadPayload || got != nil {
				t.Fatalf("%q, %q, %d: %q, %v", value, member, by, got, err)
			}
			return
		}
		var was int64
		if old, found := ledger.Member(value, member); found {
			if was, err = strconv.ParseInt(string(old), 10, 64); err != nil {
				t.Fatalf("%q, %q, %d: %q, and there was %s", value, member, by, got, old)
			}
		}
		if sum, found := ledger.Member(got, member); !ledger.IsJSON(got) || !found || string(sum) != strconv.FormatInt(was+by, 10) {
			t.Fatalf("%q, %q, %d: %q", value, member, by, got)
		}
		if back, _, err := Add(got, member, -by); err != nil {
			t.Fatalf("%q, %q, %d: %q, and back: %v", value, member, by, got, err)
		} else if _, found := ledger.Member(value, member); found && string(back) != string(value) {
			t.Fatalf("%q, %q, %d: %q, and back %q", value, member, by, got, back)
		}
	})
}
