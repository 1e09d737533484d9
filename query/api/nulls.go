package api

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const schemaPrefix = "#/components/schemas/"

// describeNulls says of each field of an answer that points to an object that it may be null as well: what is generated for
// such a field is the object alone, while an answer holds null where nothing is known. What asks is left as it is: nothing asked
// has such a field without omitempty.
func describeNulls(schemas huma.Registry) {
	for name, schema := range schemas.Map() {
		for _, f := range reflect.VisibleFields(schemas.TypeFromRef(schemaPrefix + name)) {
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			object := schema.Properties[key]
			if object == nil || object.Ref == "" || f.Type.Kind() != reflect.Pointer || strings.Contains(options, "omit") {
				continue
			}
			schema.Properties[key] = &huma.Schema{
				Description: object.Description, AnyOf: []*huma.Schema{{Ref: object.Ref}, {Type: "null"}},
			}
		}
	}
}
