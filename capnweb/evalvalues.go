// Evaluation of plain values: their contents are checked, and nothing is called.

package capnweb

import (
	"encoding/base64"
	"math"
	"math/big"
	"strings"
	"time"
)

func (e *evaluator) bigint(s string) (any, error) {
	if len(s) > e.limits().BigIntDigits {
		e.countHit(LimitBigIntDigits)
		return nil, violation("a bigint of %d digits is too large", len(s))
	}
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil, violation("a bad bigint")
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, violation("a bad bigint")
	}
	return n, nil
}

func (e *evaluator) date(v any) (any, error) {
	switch v := v.(type) {
	case nil:
		e.notePeerVersion(8)
		return time.Time{}, nil
	case float64:
		if math.Abs(v) > maxDate {
			return time.Time{}, nil
		}
		return time.UnixMilli(int64(v)).UTC(), nil
	}
	return nil, violation("a bad date expression")
}

func (e *evaluator) bytes(s string, marker []any) (any, error) {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return nil, violation("bytes that are no base64")
	}
	if len(marker) == 0 {
		return data, nil
	}
	e.notePeerVersion(11)
	name, _ := marker[0].(string)
	b := Bytes{Container: name, Data: data}
	if name == "" {
		return nil, violation("an unknown kind of bytes")
	}
	if err := checkBytes(b); err != nil {
		return nil, violation("bytes: %v", err)
	}
	if name == "Uint8Array" {
		return data, nil
	}
	return b, nil
}

var errorNames = map[string]bool{
	"Error": true, "EvalError": true, "RangeError": true, "ReferenceError": true, "SyntaxError": true, "TypeError": true,
	"URIError": true, "AggregateError": true,
}

func (e *evaluator) error(a []any, depth int, p *payload) (any, error) {
	name, ok1 := a[1].(string)
	message, ok2 := a[2].(string)
	if !ok1 || !ok2 {
		return nil, violation("a bad error expression")
	}
	if !errorNames[name] {
		name = "Error"
	}
	err := &Error{Name: name, Message: message}
	if len(a) > 3 {
		switch stack := a[3].(type) {
		case string:
			err.Stack = stack
		case nil:
		default:
			return nil, violation("a bad error expression")
		}
	}
	if len(a) == 5 {
		props, ok := a[4].(map[string]any)
		if !ok {
			return nil, violation("a bad error expression")
		}
		e.notePeerVersion(8)
		delete(props, "name")
		delete(props, "message")
		delete(props, "stack")
		v, verr := e.eval(props, depth+1, p)
		if verr != nil {
			return nil, verr
		}
		if m := v.(map[string]any); len(m) > 0 {
			err.Props = m
		}
	}
	return err, nil
}

func headersOf(v any) (Headers, error) {
	pairs, ok := v.([]any)
	if !ok {
		return nil, violation("bad headers")
	}
	h := make(Headers, 0, len(pairs))
	for _, x := range pairs {
		pair, _ := x.([]any)
		name, ok1 := str(pair, 0)
		value, ok2 := str(pair, 1)
		if !ok1 || !ok2 || len(pair) != 2 {
			return nil, violation("bad headers")
		}
		h = append(h, [2]string{strings.ToLower(name), value})
	}
	return h, nil
}

func initHeaders(init map[string]any) (Headers, error) {
	v, ok := init["headers"]
	delete(init, "headers")
	if !ok || v == nil {
		return nil, nil
	}
	return headersOf(v)
}

func (e *evaluator) request(a []any, depth int, p *payload) (any, error) {
	url, ok1 := a[1].(string)
	init, ok2 := a[2].(map[string]any)
	if !ok1 || !ok2 {
		return nil, violation("a bad request expression")
	}
	e.notePeerVersion(5)
	init = shallow(init)
	r := &Request{URL: url}
	var err error
	if r.Headers, err = initHeaders(init); err != nil {
		return nil, err
	}
	if m, ok := init["method"]; ok {
		if r.Method, ok = m.(string); !ok {
			return nil, violation("a bad request expression")
		}
	}
	if b, ok := init["body"]; ok && b != nil {
		if r.Body, err = e.eval(b, depth+1, p); err != nil {
			return nil, err
		}
		if !isBody(r.Body) {
			return nil, violation("a request's body must be a stream, a string or bytes")
		}
	}
	if s, ok := init["signal"]; ok && s != nil {
		return nil, violation("a request cannot carry a signal")
	}
	for _, k := range []string{"method", "body", "signal", "duplex"} {
		delete(init, k)
	}
	stripInit(init)
	if len(init) > 0 {
		r.Init = init
	}
	return r, nil
}

func (e *evaluator) response(a []any, depth int, p *payload) (any, error) {
	init, ok := a[2].(map[string]any)
	if !ok {
		return nil, violation("a bad response expression")
	}
	e.notePeerVersion(5)
	init = shallow(init)
	r := &Response{}
	var err error
	if r.Body, err = e.eval(a[1], depth+1, p); err != nil {
		return nil, err
	}
	if !isBody(r.Body) {
		return nil, violation("a response's body must be a stream, a string or bytes")
	}
	if r.Headers, err = initHeaders(init); err != nil {
		return nil, err
	}
	if s, ok := init["status"]; ok {
		f, ok := s.(float64)
		if !ok || f != math.Trunc(f) || f < 200 || f > 599 {
			return nil, violation("a bad response expression")
		}
		r.Status = int(f)
	}
	if s, ok := init["statusText"]; ok {
		if r.StatusText, ok = s.(string); !ok {
			return nil, violation("a bad response expression")
		}
	}
	if s, ok := init["webSocket"]; ok && s != nil {
		return nil, violation("a response cannot carry a socket")
	}
	for _, k := range []string{"status", "statusText", "webSocket"} {
		delete(init, k)
	}
	stripInit(init)
	if len(init) > 0 {
		r.Init = init
	}
	return r, nil
}

func shallow(m map[string]any) map[string]any {
	w := make(map[string]any, len(m))
	for k, v := range m {
		w[k] = v
	}
	return w
}

func stripInit(m map[string]any) {
	for k := range m {
		if k == "toJSON" || isReserved(k) {
			delete(m, k)
		}
	}
}
