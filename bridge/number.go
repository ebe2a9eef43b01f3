// Numbers: conversion between JavaScript's, as peers send them, and the schema's.

package bridge

import (
	"fmt"
	"math"
	"math/big"
)

// maxSafeInteger is the highest integer up to which every integer is exact in JavaScript.
const maxSafeInteger = 1 << 53

// integer returns an integer's bits, in 64, if it is in the type's range.
func (t *typePlan) integer(v any) (uint64, error) {
	neg, abs, ok := whole(v)
	if !ok {
		return 0, t.mismatch(v)
	}
	limit := uint64(math.MaxUint64) >> (64 - t.bits)
	switch {
	case !t.signed && (neg && abs != 0 || abs > limit),
		t.signed && neg && abs > limit/2+1, t.signed && !neg && abs > limit/2:
		return 0, &typeError{text: "out of range: " + t.describe()}
	case neg:
		return -abs, nil
	}
	return abs, nil
}

// whole returns sign and magnitude of an integer; ok is false for any other value, or beyond 64 bits and a sign.
func whole(v any) (neg bool, abs uint64, ok bool) {
	switch v := v.(type) {
	case float64:
		m := math.Abs(v)
		if v != math.Trunc(v) || m >= 1<<64 { // NaN and the infinities too
			return false, 0, false
		}
		return v < 0, uint64(m), true
	case *big.Int:
		if v == nil || v.BitLen() > 64 {
			return false, 0, false
		}
		return v.Sign() < 0, new(big.Int).Abs(v).Uint64(), true
	case int:
		return signed(int64(v))
	case int8:
		return signed(int64(v))
	case int16:
		return signed(int64(v))
	case int32:
		return signed(int64(v))
	case int64:
		return signed(v)
	case uint:
		return false, uint64(v), true
	case uint8:
		return false, uint64(v), true
	case uint16:
		return false, uint64(v), true
	case uint32:
		return false, uint64(v), true
	case uint64:
		return false, v, true
	}
	return false, 0, false
}

func signed(v int64) (neg bool, abs uint64, ok bool) {
	if v < 0 {
		return true, -uint64(v), true
	}
	return false, uint64(v), true
}

// describe returns the type's description for error messages.
func (t *typePlan) describe() string {
	switch {
	case t.kind != kindInt:
		return kindNames[t.kind]
	case t.signed:
		return fmt.Sprintf("a whole number of %d bits and a sign", t.bits-1)
	case t.bits < 53:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.bits-1)
	}
	return fmt.Sprintf("a whole number from 0 to 2^%d-1", t.bits)
}

var kindNames = map[kind]string{kindVoid: "null", kindBool: "true or false", kindInt: "a whole number", kindFloat: "a number",
	kindEnum: "a name", kindText: "a string", kindData: "a Uint8Array", kindList: "an array", kindStruct: "an object",
	kindGroup: "an object", kindCapability: "an object to call"}

// bitsOf returns a floating point number's bits.
func (t *typePlan) bitsOf(v any) (uint64, error) {
	f, ok := v.(float64)
	if !ok {
		neg, abs, whole := whole(v)
		if !whole {
			return 0, t.mismatch(v)
		}
		if f = float64(abs); neg {
			f = -f
		}
	}
	if t.bits == 32 {
		return uint64(math.Float32bits(float32(f))), nil
	}
	return math.Float64bits(f), nil
}

// number converts a number's bits for a peer: to a number if JavaScript represents it exactly, else to a bigint.
func (t *typePlan) number(bits uint64) any {
	switch {
	case t.kind == kindFloat && t.bits == 32:
		return float64(math.Float32frombits(uint32(bits)))
	case t.kind == kindFloat:
		return math.Float64frombits(bits)
	case t.kind == kindEnum:
		if bits < uint64(len(t.names)) {
			return t.names[bits]
		}
		return bits
	case t.signed:
		shift := 64 - t.bits
		v := int64(bits<<shift) >> shift
		if v > maxSafeInteger || v < -maxSafeInteger {
			return big.NewInt(v)
		}
		return v
	case bits > maxSafeInteger:
		return new(big.Int).SetUint64(bits)
	}
	return bits
}
