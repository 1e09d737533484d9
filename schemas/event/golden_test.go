package event

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// update writes the golden bytes that are missing. Those that exist are what was once in somebody's Kafka: they are
// never written again.
var update = os.Getenv("SPILLWAY_UPDATE_GOLDEN") == "1"

// golden is one record as it was written by a released version: NAME.txtpb says what it holds, NAME.bin how it was
// encoded. A field that is added later comes with a file of its own, RECORD_SOMETHING.txtpb.
type golden struct {
	name   string
	topic  string
	record Record // as NAME.txtpb has it
	value  []byte // NAME.bin
}

func goldens(t testing.TB) []golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/v1/*.txtpb")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txtpb")
		record, _, _ := strings.Cut(name, "_")
		g := golden{name: name, topic: "spillway." + record + ".v1"}
		if g.record, err = New(g.topic); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := prototext.Unmarshal(text, g.record); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		bin := strings.TrimSuffix(path, ".txtpb") + ".bin"
		g.value, err = os.ReadFile(bin)
		if errors.Is(err, os.ErrNotExist) && update {
			if _, g.value, err = Encode(g.record); err == nil {
				err = os.WriteFile(bin, g.value, 0o644)
			}
		}
		if err != nil {
			t.Fatalf("%v: run make golden", err)
		}
		out = append(out, g)
	}
	return out
}

func TestEveryReleasedRecordIsReadForEver(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			seen[g.topic] = true
			got, err := Decode(g.topic, g.value)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, g.record) {
				t.Errorf("read as\n%s", prototext.Format(got))
			}
			_, value, err := Encode(g.record)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(value, g.value) {
				t.Errorf("the record is now encoded in other bytes than it was: an old reader may read something else\n%x\n%x", g.value, value)
			}
		})
	}
	for _, topic := range Topics() {
		if !seen[topic] {
			t.Errorf("topic %s has no golden record in testdata/v1", topic)
		}
	}
}

// TestGoldensSetEveryField makes a new field come with golden bytes.
func TestGoldensSetEveryField(t *testing.T) {
	set := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			set[f.FullName()] = true
			switch {
			case f.Message() == nil:
			case f.IsList():
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			default:
				walk(v.Message())
			}
			return true
		})
	}
	for _, g := range goldens(t) {
		walk(g.record.ProtoReflect())
	}
	messages := File_spillway_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			if f := fields.Get(j); !set[f.FullName()] {
				t.Errorf("no golden record sets %s", f.FullName())
			}
		}
	}
}

// TestAFieldOfANewerVersionIsSkipped: an old reader meets fields, messages and words it has never heard of.
func TestAFieldOfANewerVersionIsSkipped(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			newer := bytes.Clone(g.value)
			newer = protowire.AppendTag(newer, 20_000, protowire.VarintType)
			newer = protowire.AppendVarint(newer, 7)
			newer = protowire.AppendTag(newer, 20_001, protowire.BytesType)
			newer = protowire.AppendBytes(newer, []byte("\xff not even text"))
			newer = protowire.AppendTag(newer, 20_002, protowire.Fixed64Type)
			newer = protowire.AppendFixed64(newer, 1)
			newer = protowire.AppendTag(newer, 20_003, protowire.StartGroupType)
			newer = protowire.AppendTag(newer, 20_003, protowire.EndGroupType)
			got, err := Decode(g.topic, newer)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, g.record) {
				t.Errorf("read as\n%s", prototext.Format(got))
			}
		})
	}
	// Inside a message of a record, too.
	nested := protowire.AppendTag(nil, 20_000, protowire.VarintType)
	nested = protowire.AppendVarint(nested, 7)
	p := held()
	_, value, err := Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	value = protowire.AppendTag(value, 28, protowire.BytesType) // intent, merged into what is there
	value = protowire.AppendBytes(value, nested)
	if got, err := Decode(TopicPlacement, value); err != nil || !proto.Equal(got, p) {
		t.Errorf("an unknown field of the intent gave %v, %v", got, err)
	}
}

// TestEveryPrefixIsRefusedOrKeepsTheRules: a truncated record may be a shorter record that is whole, which no encoding
// can tell; it must never be read beyond its end, panic, or slip through the rules.
func TestEveryPrefixIsRefusedOrKeepsTheRules(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			refused := 0
			for i := range g.value {
				r, err := Decode(g.topic, g.value[:i:i])
				if err != nil {
					refused++
					continue
				}
				if err := r.Validate(); err != nil {
					t.Fatalf("%d bytes of it were taken against the rules: %v", i, err)
				}
			}
			if refused < len(g.value)/4 {
				t.Errorf("%d of %d prefixes were refused: the test proves little", refused, len(g.value))
			}
		})
	}
}

// FuzzDecode reads anything as any record: what is taken keeps the rules and survives a round trip.
func FuzzDecode(f *testing.F) {
	topics := Topics()
	for _, g := range goldens(f) {
		for i, topic := range topics {
			if topic == g.topic {
				f.Add(byte(i), g.value)
				f.Add(byte(i), g.value[:len(g.value)/2])
			}
		}
	}
	f.Add(byte(0), []byte{})
	f.Fuzz(func(t *testing.T, which byte, value []byte) {
		topic := topics[int(which)%len(topics)]
		r, err := Decode(topic, value)
		if err != nil {
			return
		}
		key, again, err := Encode(r)
		if err != nil {
			if len(value) > MaxBytes/2 {
				return
			}
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := Decode(topic, again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if !proto.Equal(r, back) {
			t.Fatalf("%s became %s", protojson.Format(r), protojson.Format(back))
		}
		if topic != TopicDeadLetter {
			cluster := r.ProtoReflect().Get(r.ProtoReflect().Descriptor().Fields().ByName("cluster")).String()
			if !bytes.HasPrefix(key, []byte(cluster+"/")) || cluster == "" {
				t.Fatalf("key %q does not begin with cluster %q", key, cluster)
			}
		}
	})
}
