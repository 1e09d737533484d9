package simulate

// clock maps the fleet's own time (milliseconds since its origin) onto wall time (Unix milliseconds). The history is lived
// at speed 1, the live part at the configured speed; a new clock begins where the last one ends, so that times already
// told stay true and time never goes back.
type clock struct {
	Fleet int64   `json:"fleet"`
	Wall  int64   `json:"wall"`
	Speed float64 `json:"speed"`
}

// wall is when something that happens at fleet time v shows.
func (c clock) wall(v int64) int64 { return c.Wall + int64(float64(v-c.Fleet)/c.Speed) }

// fleet is the fleet time at a wall time.
func (c clock) fleet(wall int64) int64 { return c.Fleet + int64(float64(wall-c.Wall)*c.Speed) }
