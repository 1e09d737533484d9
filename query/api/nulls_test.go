package api

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// TestWhatMayBeNullIsDescribedSo writes each type of an answer with nothing in it, as encoding/json does: all that is null then
// must be described so.
func TestWhatMayBeNullIsDescribedSo(t *testing.T) {
	doc := newServer(t, DefaultConfig(), nil).api.OpenAPI()
	schemas := doc.Components.Schemas
	asked, told := reached{schemas, map[string]bool{}}, reached{schemas, map[string]bool{}}
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				asked.content(op.RequestBody.Content)
			}
			for _, r := range op.Responses {
				told.content(r.Content)
			}
		}
	}
	objects := 0
	for ref := range told.refs {
		of, schema := schemas.TypeFromRef(ref), schemas.SchemaFromRef(ref)
		text, err := json.Marshal(reflect.New(of).Interface())
		if err != nil {
			t.Fatal(err)
		}
		var empty map[string]any
		if err := json.Unmarshal(text, &empty); err != nil {
			t.Fatal(err)
		}
		for key, value := range empty {
			property := schema.Properties[key]
			if property == nil || value != nil || property.Type == huma.TypeObject { // maps are made by who answers
				continue
			}
			isNull := func(s *huma.Schema) bool { return s.Type == "null" }
			if slices.ContainsFunc(property.AnyOf, isNull) {
				objects++
			} else if !property.Nullable && !reflect.DeepEqual(property, &huma.Schema{Description: property.Description}) {
				t.Errorf("%s of %s may be null and is described as %q %s", key, of, property.Type, property.Ref)
			}
		}
		for _, f := range reflect.VisibleFields(of) {
			if k := f.Type.Kind(); (k == reflect.Slice || k == reflect.Map) && f.Type.Elem().Kind() == reflect.Pointer && schema.Properties[f.Name] != nil {
				t.Errorf("%s of %s holds pointers: whether one may be null is not described", f.Name, of)
			}
		}
	}
	if len(told.refs) < 40 || objects < 4 {
		t.Errorf("saw %d types and %d objects that may be null", len(told.refs), objects)
	}
	for ref := range asked.refs {
		for key, property := range schemas.SchemaFromRef(ref).Properties {
			if property.AnyOf != nil {
				t.Errorf("%s of %s is asked for: a null there would be taken", key, ref)
			}
		}
	}
}

// reached collects the types that descriptions refer to.
type reached struct {
	schemas huma.Registry
	refs    map[string]bool
}

func (r reached) content(content map[string]*huma.MediaType) {
	for _, m := range content {
		r.schema(m.Schema)
	}
}

func (r reached) schema(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" && !r.refs[s.Ref] {
		r.refs[s.Ref] = true
		r.schema(r.schemas.SchemaFromRef(s.Ref))
	}
	for _, some := range [][]*huma.Schema{{s.Items}, s.OneOf, s.AnyOf, s.AllOf} {
		for _, of := range some {
			r.schema(of)
		}
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		r.schema(more)
	}
	for _, property := range s.Properties {
		r.schema(property)
	}
}
