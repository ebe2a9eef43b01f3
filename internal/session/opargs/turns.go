package opargs

// begin, appendText and finalize: a message while it is being written.

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Begin has the arguments of begin.
type Begin struct {
	Message string
	Payload []byte
	Schema  uint32
}

func decodeBegin(r *Decoder) Op {
	return &Begin{Message: r.id("message", required), Payload: r.object("payload", required), Schema: r.schema("schema_version")}
}

// AppendText has the arguments of appendText.
type AppendText struct {
	Key    session.Key
	Offset uint64
	Text   string
}

func decodeAppendText(r *Decoder) Op {
	o := &AppendText{Key: r.key("key"), Text: r.textChunk("text")}
	o.Offset, _ = r.number("offset", required)
	if r.err == nil && !r.unresolved("key") && o.Key.Kind != session.KeyPart {
		r.fail(fault.BadKey.With("text can be appended to a part only: part/MESSAGE/ID"))
	}
	return o
}

// Part is one of finalize's parts.
type Part struct {
	ID      string
	Payload []byte
	Schema  uint32
}

// Finalize has the arguments of finalize.
type Finalize struct {
	Message   string
	Step      session.TurnStep
	Status    string
	Payload   []byte // nil: the message's payload stays, except for the fields below
	Schema    uint32
	Parts     []Part
	Usage     []byte
	Failure   []byte
	Completed uint64       // 0: now
	Digest    session.Hash // over the arguments, to recognize an equal second call
}

func decodeFinalize(r *Decoder) Op {
	o := &Finalize{
		Message: r.id("message", required),
		Status:  r.text("status", required),
		Payload: r.object("payload", optional),
		Schema:  r.schema("schema_version"),
		Parts:   r.parts("parts"),
		Usage:   r.object("usage", optional),
		Failure: r.object("error", optional),
	}
	o.Completed, _ = r.number("completed", optional)
	if r.err == nil && !r.unresolved("status") {
		var ok bool
		if o.Step, ok = session.EndStep(o.Status); !ok {
			r.fail(fault.BadArgument.With("status is %q: use completed, failed or aborted", fault.Clip(o.Status)))
		}
	}
	o.Digest = r.digest()
	return o
}

// parts decodes finalize's list of {id, payload, schema_version}, up to the first invalid one.
func (r *Decoder) parts(name string) []Part {
	raw := r.raw(name, optional)
	if raw == nil {
		return nil
	}
	var parts []Part
	seen := map[string]bool{}
	list, ok := gjson.ParseBytes(raw), false
	if list.IsArray() {
		ok = true
		list.ForEach(func(_, e gjson.Result) bool {
			var p Part
			if p, ok = r.part(name, e); seen[p.ID] {
				ok = false
			}
			if len(parts) == session.MaxTerminalParts {
				r.fail(fault.TooLarge.With("%s has more than %d parts: put the others before the turn ends", name, session.MaxTerminalParts))
				ok = false
			}
			seen[p.ID] = true
			parts = append(parts, p)
			return ok
		})
	}
	if !ok {
		r.fail(fault.BadArgument.With(`%s is not a list of {"id", "payload", "schema_version"}, each id once`, name))
		return nil
	}
	return parts
}

// part decodes an element of the list of parts.
func (r *Decoder) part(name string, e gjson.Result) (p Part, ok bool) {
	p.Schema, ok = 1, e.IsObject()
	if !ok {
		return p, false
	}
	e.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "id":
			p.ID = v.Str
		case "payload":
			p.Payload = []byte(v.Raw)
		case "schema_version":
			n, err := strconv.ParseUint(v.Raw, 10, 31)
			p.Schema, ok = uint32(n), err == nil && n > 0
		default:
			ok = false
		}
		return ok
	})
	switch {
	case !ok:
		return p, false
	case !session.ValidID(p.ID, false):
		r.fail(fault.BadKey.With("%s: %q is not an id: use 1 to %d letters, digits and _.:@+-", name, fault.Clip(p.ID), session.MaxIDBytes))
	case !rawjson.IsObject(p.Payload):
		r.fail(fault.BadPayload.With("%s: the payload of %s is not a JSON object", name, p.ID))
	}
	return p, r.err == nil
}

// digest returns a digest of all arguments, independent of their order.
func (r *Decoder) digest() session.Hash {
	args := slices.Clone(r.in.Args)
	slices.SortFunc(args, func(a, b ledger.Arg) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	h.Write([]byte("mooring arguments v1"))
	var n [8]byte
	for _, a := range args {
		for _, b := range [][]byte{[]byte(a.Name), a.JSON} {
			binary.BigEndian.PutUint64(n[:], uint64(len(b)))
			h.Write(n[:])
			h.Write(b)
		}
	}
	var d session.Hash
	h.Sum(d[:0])
	return d
}

// EndsOnly reports whether the op only ends the turn and changes no entry.
func (o *Finalize) EndsOnly() bool {
	return o.Payload == nil && len(o.Parts) == 0 && o.Usage == nil && o.Failure == nil && o.Completed == 0
}
