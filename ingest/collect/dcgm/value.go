package dcgm

import (
	"math"
	"strings"
)

// Blanks: what DCGM stores where it has no value (dcgm_structs.h). Each is the first of four: blank, not found, not
// supported, not permissioned. Older exporters print them as if they were measured.
const (
	blankInt32 = 0x7ffffff0
	blankFloat = 1 << 47
	// The four of int64, and all that its test for blank takes besides, are the same number once it is a float.
	blankInt64 = 1 << 63
)

// isBlank says whether a number is one of DCGM's blanks. The smaller ones are tested for equality: a counter may well
// have passed them.
func isBlank(v float64) bool {
	return v >= blankInt64 ||
		v >= blankInt32 && v < blankInt32+4 && v == math.Trunc(v) ||
		v >= blankFloat && v < blankFloat+4 && v == math.Trunc(v)
}

// isBlankText recognises blanks of text, as <<<NOT_SUPPORTED>>>.
func isBlankText(s string) bool { return strings.HasPrefix(s, "<<<") && strings.HasSuffix(s, ">>>") }

// Reasons that a value is left out for.
const (
	dropBlank       = "blank"       // the source has none
	dropNegative    = "negative"    // a rate over a reset of its counter
	dropImplausible = "implausible" // more than the links can carry
	dropStale       = "stale"       // not renewed by DCGM
	dropDuplicate   = "duplicate"   // the same sample twice
	dropConflict    = "conflict"    // two samples of one thing that differ; the first counts
	dropUnnamed     = "unnamed"     // of no known node or GPU
	dropOvertaken   = "overtaken"   // an answer that came after a newer one about the same node
	dropSyntax      = "syntax"      // a line that cannot be read
	dropValue       = "value"       // a line whose value is no number
)

// clean brings the number of a field to the unit of the record, or gives the reason it is no number.
func (f *field) clean(v float64) (float64, string) {
	switch {
	case math.IsNaN(v) || isBlank(v):
		return 0, dropBlank
	case f.kind == identity:
		return v, ""
	case math.IsInf(v, 0):
		return 0, dropBlank
	case v < 0:
		return 0, dropNegative
	case f.kind == bitError:
		return unpackBER(v)
	case f.scale != 0:
		v *= f.scale
	}
	return v, ""
}

// unpackBER decodes a bit error rate: bits 0-7 are an exponent e, bits 8-11 a mantissa m, of m * 10^-e; all ones are a
// rate of zero (DcgmUtilities.cpp).
func unpackBER(v float64) (float64, string) {
	if v != math.Trunc(v) || v > 0xfff {
		return 0, dropImplausible
	}
	if v == 0xfff {
		return 0, ""
	}
	raw := uint(v)
	return float64(raw>>8) / math.Pow10(int(raw&0xff)), ""
}
