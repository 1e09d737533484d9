package simulate

// A minHeap keeps values by (at, seq); its head is the smallest. Its order of equal times is that of pushing.
type minHeap[T any] struct {
	items []item[T]
	seq   uint64
}

type item[T any] struct {
	At    int64  `json:"at"`
	Seq   uint64 `json:"seq"`
	Value T      `json:"value"`
}

func (a item[T]) less(b item[T]) bool { return a.At < b.At || a.At == b.At && a.Seq < b.Seq }

func (h *minHeap[T]) push(at int64, v T) {
	h.seq++
	h.items = append(h.items, item[T]{at, h.seq, v})
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.items[i].less(h.items[up]) {
			break
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

// head is when the smallest value is due; ok is false on an empty heap.
func (h *minHeap[T]) head() (at int64, ok bool) {
	if len(h.items) == 0 {
		return 0, false
	}
	return h.items[0].At, true
}

func (h *minHeap[T]) pop() (int64, T) {
	top := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items[last] = item[T]{}
	h.items = h.items[:last]
	for i := 0; ; {
		small := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && h.items[c].less(h.items[small]) {
				small = c
			}
		}
		if small == i {
			return top.At, top.Value
		}
		h.items[i], h.items[small] = h.items[small], h.items[i]
		i = small
	}
}
