package hostlist

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A recorded answer of Slurm's parser: how many names, the list printed again, and the first twelve names.
type recorded struct {
	expr    string
	refused bool
	count   int
	ranged  string
	first   []string
}

// readRecorded reads the answers. The lines "hl: error" are the parser's own messages and carry no case.
func readRecorded(t *testing.T) []recorded {
	t.Helper()
	f, err := os.Open("testdata/hostlist_cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	form := regexp.MustCompile(`^(.*?) *=> (?:(NULL) \(error\)|n=(\d+) ranged=(.*) expand=(.*))$`)
	var out []recorded
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "hl: error") {
			continue
		}
		m := form.FindStringSubmatch(sc.Text())
		if m == nil {
			t.Fatalf("line %q has no case", sc.Text())
		}
		n, _ := strconv.Atoi(m[3])
		out = append(out, recorded{expr: m[1], refused: m[2] != "", count: n, ranged: m[4], first: strings.Fields(m[5])})
	}
	return out
}

func TestRecordedAnswers(t *testing.T) {
	cases := readRecorded(t)
	if len(cases) != 67 {
		t.Fatalf("%d recorded cases, want 67: the reader of the file lost some", len(cases))
	}
	for _, c := range cases {
		t.Run(c.expr, func(t *testing.T) {
			names, err := Expand(c.expr)
			n, cerr := Count(c.expr)
			if c.refused {
				if err == nil || cerr == nil {
					t.Fatalf("Slurm refuses it; got %q", names)
				}
				return
			}
			if err != nil || cerr != nil {
				t.Fatal(err, cerr)
			}
			if len(names) != c.count || n != c.count {
				t.Errorf("%d names, counted %d, want %d", len(names), n, c.count)
			}
			if got := names[:min(len(names), len(c.first))]; !slices.Equal(got, c.first) {
				t.Errorf("names %q, want %q", got, c.first)
			}
			want := c.ranged
			if c.expr == "n[1-2][3-4]" {
				// Slurm prints the groups it read. Given the names n13 n14 n23 n24, it prints what Compress must print.
				want = "n[13-14,23-24]"
			}
			if got := Compress(names); got != want {
				t.Errorf("printed %q, want %q", got, want)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	for name, c := range map[string]struct {
		expr string
		want []string
	}{
		"null is no list":                           {"(null)", nil},
		"a job never placed has no list":            {" None assigned ", nil},
		"separators mix and repeat":                 {"n1,\t n2\n,n3", []string{"n1", "n2", "n3"}},
		"the last of four groups counts fastest":    {"a[1-2]b[1-2]c1d[1-2]", []string{"a1b1c1d1", "a1b1c1d2", "a2b1c1d1", "a2b1c1d2", "a1b2c1d1", "a1b2c1d2", "a2b2c1d1", "a2b2c1d2"}},
		"each group keeps its own width":            {"r[09-10]n[9-10]", []string{"r09n9", "r09n10", "r10n9", "r10n10"}},
		"a bracket that closes nothing is a letter": {"n1],n2", []string{"n1]", "n2"}},
		"the largest number is reached":             {"n[4294967294-4294967295]", []string{"n4294967294", "n4294967295"}},
		"a suffix follows each name of a group":     {"n[1-2]-ib.example.test,m", []string{"n1-ib.example.test", "n2-ib.example.test", "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Expand(c.expr)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("Expand(%q) = %q, %v; want %q", c.expr, got, err, c.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ expr, says string }{
		"a box of a multi-dimensional cluster":   {"bp[000x333]", "box"},
		"a hostlist function":                    {"n1,block{rack01}", "hostlist function"},
		"a number beyond 32 bits":                {"n[1-4294967296]", "above 4294967295"},
		"a number beyond 64 bits":                {"n[18446744073709551615]", "above 4294967295"},
		"a range of more than 65536":             {"n[1-65537]", "more than the 65536"},
		"prefix groups of more than 65536":       {"a[1-300]b[1-300]c[1-2]", "combinations"},
		"more names than any cluster has":        {"a[1-65536]b[1-65536]", "more than 1048576"},
		"many ranges of more names than allowed": {"a[" + strings.Repeat("1-65536,", 17) + "1]", "more than 1048576"},
		"many elements of more names":            {strings.Repeat("a[1-65536],", 17), "more than 1048576"},
		"names of too many bytes":                {strings.Repeat("a", 1000) + "[1-65536]," + strings.Repeat("a", 1000) + "[1-65536]", "MiB of names"},
		"a name too long for Slurm":              {strings.Repeat("a", 1025), "longer than"},
		"a bracket never closed":                 {"n[1-2],m[3", "never closed"},
		"a range backwards":                      {"n[3-1]", "backwards"},
		"an error in a group before the last":    {"a[x]b[1-2]c[3]", "not supported"},
		"spaces in brackets":                     {"n[ 1]", "not allowed in brackets"},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := Expand(c.expr)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %d names and error %v, want an error with %q", len(names), err, c.says)
			}
			if _, cerr := Count(c.expr); cerr == nil || cerr.Error() != err.Error() {
				t.Errorf("Count says %v, Expand %v", cerr, err)
			}
		})
	}
}

func TestErrorNamesThePlace(t *testing.T) {
	_, err := Expand("n[1-3], m[5-]x,q[9-8]")
	if err == nil || !strings.Contains(err.Error(), `"q[9-8]" at byte 15`) {
		t.Errorf("error %v does not name the element and its byte", err)
	}
}

func TestCompress(t *testing.T) {
	for name, c := range map[string]struct {
		names []string
		want  string
	}{
		"nothing":                              {nil, ""},
		"order is kept":                        {[]string{"n3", "n2", "n1"}, "n[3,2,1]"},
		"widths stay apart":                    {[]string{"n99", "n100", "n0101"}, "n[99-100,0101]"},
		"a zero-padded run goes on past it":    {[]string{"n09", "n10", "n11"}, "n[09-11]"},
		"a number too large stands alone":      {[]string{"n4294967295", "n4294967296"}, "n4294967295,n4294967296"},
		"names without numbers stand alone":    {[]string{"login", "login", "n1"}, "login,login,n1"},
		"a run longer than a range is divided": {manyNames(65537), "n[0-65535,65536]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Compress(c.names); got != c.want {
				t.Errorf("printed %q, want %q", got, c.want)
			}
		})
	}
}

func manyNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "n" + strconv.Itoa(i)
	}
	return out
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{
		"node[001-018,020]", "r[1-2]s[1-2]n[1-2]x[1-2]", "n[9-10],n[09-10]", "n[[1-2]]", "n[1-2]]", "n18446744073709551616", "a[099-101]-ib", "n[+1-3]",
		"bp[000x333]", "block{a}", "(null)", "None assigned", "n[", "]", "a[1]]b[2]", "n[1-010],n011,n12",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		names, err := Expand(expr)
		n, cerr := Count(expr)
		if (err == nil) != (cerr == nil) || n != len(names) && err == nil {
			t.Fatalf("Expand gives %d names and %v, Count %d and %v", len(names), err, n, cerr)
		}
		if len(names) > MaxNames {
			t.Fatalf("%d names", len(names))
		}
		for _, name := range names {
			if strings.ContainsAny(name, "[]") || IsNone(name) {
				return // printed as Slurm prints it, but not meant to be read back
			}
		}
		again, err := Expand(Compress(names))
		if err != nil || !slices.Equal(again, names) {
			t.Fatalf("%q printed as %q reads back as %q, %v", names, Compress(names), again, err)
		}
	})
}

func BenchmarkExpand100kNodes(b *testing.B) {
	const expr = "gb-r[001-100]-n[0001-1000]"
	b.ReportAllocs()
	for b.Loop() {
		if names, err := Expand(expr); err != nil || len(names) != 100_000 {
			b.Fatal(len(names), err)
		}
	}
}

func BenchmarkCompress100kNodes(b *testing.B) {
	names, err := Expand("gb-r[001-100]-n[0001-1000]")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(Compress(names)) < 100 {
			b.Fatal("nothing printed")
		}
	}
}
