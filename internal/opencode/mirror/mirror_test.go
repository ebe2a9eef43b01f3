package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

func put(key, payload string) opencode.Put { return opencode.Put{Key: key, Payload: []byte(payload)} }

// fixture is the mirror of a session that no server has seen, and what was committed to it.
type fixture struct {
	*Mirror
	t       *testing.T
	session *client.Session
	name    string
	sizes   []int // of the batches
	refuse  error // of the next commit
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	owner := capability.Ref{Hosts: []string{"127.0.0.1:1"}}.New("spc_01M8800Z2W0WC3SYW0QTE18W3C")
	space, err := c.Space(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, name: filepath.Join(t.TempDir(), "keys")}
	f.session, _ = space.Create(client.CreateOptions{})
	f.open()
	return f
}

// open opens it anew, as after a crash.
func (f *fixture) open() {
	f.t.Helper()
	m := New(f.session, f.name, func(_ context.Context, b *client.Batch) error {
		if err := f.refuse; err != nil {
			f.refuse = nil
			return err
		}
		f.sizes = append(f.sizes, b.Len())
		return nil
	})
	if err := m.Load(); err != nil {
		f.t.Fatal(err)
	}
	f.Mirror = m
}

// apply applies changes, and checks how many ops the batches have.
func (f *fixture) apply(what string, want []int, changes ...opencode.Put) {
	f.t.Helper()
	f.sizes = nil
	if err := f.Apply(f.t.Context(), changes); err != nil || !slices.Equal(f.sizes, want) {
		f.t.Errorf("%s: batches of %v ops, %v; want %v", what, f.sizes, err, want)
	}
}

// What is there already is not put again, in this process or a later one; what may be there is.
func TestWhatIsThereIsNotPutAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one, two := put("message/1", `{"id":"1","n":1.50}`), put("part/1/2", `{"id":"2"}`)
	f.apply("new", []int{2}, one, two)
	f.apply("the same", nil, one, put("message/1", `{"n": 1.50, "id": "1"}`))
	f.apply("other, the last of which counts", []int{1}, put("message/1", `{"n":1}`), put("message/1", `{"n":2}`))
	f.open()
	f.apply("the same in a later process", nil, put("message/1", `{"n":2}`), two)
	f.refuse = errors.New("refused")
	if err := f.Apply(t.Context(), []opencode.Put{one, put("message/3", `{}`)}); err == nil {
		t.Error("it was not refused")
	}
	f.open()
	f.apply("what may be there", []int{2}, put("message/1", `{"n":2}`), put("message/3", `{}`))
	f.apply("removed, and never there", []int{2}, opencode.Put{Key: "message/3"}, opencode.Put{Key: "message/9"}, put("message/4", `{}`))
	f.apply("removed again", nil, opencode.Put{Key: "message/3"})
	f.open()
	if f.Has("message/3") || !slices.Equal(f.Keys("message/"), []string{"message/1", "message/4"}) {
		t.Errorf("it has %v", f.Keys(""))
	}
	f.Forget()
	f.apply("after a refusal of the server", []int{1}, put("message/4", `{}`))
}

// What is too large is left out, which a value says until it is there.
func TestTooLargeIsLeftOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	large, err := json.Marshal(map[string]string{"text": string(slices.Repeat([]byte("x"), f.limits.Payload))})
	if err != nil {
		t.Fatal(err)
	}
	f.apply("too large", []int{1}, put("part/1/2", string(large)))
	if !slices.Equal(f.Keys(""), []string{"left_out/part/1/2"}) {
		t.Errorf("it has %v", f.Keys(""))
	}
	f.apply("smaller", []int{2}, put("part/1/2", `{}`))
	if !slices.Equal(f.Keys(""), []string{"part/1/2"}) {
		t.Errorf("it has %v", f.Keys(""))
	}
	f.apply("too large again", []int{1}, put("part/1/2", string(large)))
	f.Unload()
	f.sizes = nil
	if err := f.Commit(t.Context(), []opencode.Put{put("part/1/2", `{"a":1}`)}); err != nil || !slices.Equal(f.sizes, []int{2}) || f.Has("left_out/part/1/2") {
		t.Errorf("committed after it was unloaded: batches of %v ops, %v; it has %v", f.sizes, err, f.Keys(""))
	}
	list := make([]opencode.Put, f.limits.Ops+1)
	for i := range list {
		list[i] = put("message/"+string(rune('a'+i%26))+string(rune('0'+i/26)), `{}`)
	}
	f.apply("many", []int{f.limits.Ops, 1}, list...)
}

// While the session is reverted the server may remove what is hidden, so nothing counts as known.
func TestNothingIsKnownWhileReverted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	one := put("message/1", `{}`)
	f.apply("new", []int{1}, one)
	f.apply("reverted", []int{1}, put("session", `{"revert":{"messageID":"1"}}`))
	f.apply("put while it is", []int{1}, one)
	f.open()
	f.apply("and in a later process", []int{1}, one)
	f.apply("no longer", []int{1}, put("session", `{}`))
	f.apply("put once more", []int{1}, one)
	f.apply("known", nil, one)
}

// What a crash leaves of the file is read as far as it says something.
func TestTornFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	torn := func(text string) {
		t.Helper()
		file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = file.WriteString(text)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		f.open()
	}
	one := put("message/1", `{}`)
	f.apply("new", []int{1}, one)
	torn("=0011 mess")
	f.apply("after half a line", []int{1}, one, put("message/2", `{}`))
	torn("+messa=0011 message/c\n")
	if !slices.Equal(f.Keys(""), []string{"message/1", "message/2"}) {
		t.Errorf("it has %v", f.Keys(""))
	}
	for i := range 2000 {
		f.apply("again", []int{1}, put("message/1", `{"n":`+string(rune('0'+i%10))+`}`))
	}
	if info, err := os.Stat(f.name); err != nil || info.Size() > 200_000 {
		t.Errorf("its history stays: %v, %v", info.Size(), err)
	}
	f.open()
	f.apply("known", nil, put("message/2", `{}`))
}
