package dashboards

import (
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// newOf is a place to scan a column into.
func newOf(c driver.ColumnType) any { return reflect.New(c.ScanType()).Interface() }

// value is what was scanned; nil for a null.
func value(scanned any) any {
	v := reflect.ValueOf(scanned).Elem()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}
