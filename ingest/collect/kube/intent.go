package kube

import "github.com/spillway-io/spillway/schemas/event"

// intentOf is what a Workload asks of the topology: the strongest word of any of its sets of pods that use GPUs.
func (m *model) intentOf(sets []podSet) *event.Intent {
	out := &event.Intent{}
	for i := range sets {
		s := &sets[i]
		if s.request.gpus == 0 && !s.parts && !s.claims {
			continue
		}
		if in := m.asked(&s.topologyRequest, s.request.gpus); in.Mode > out.Mode || in.SegmentNodes != nil && out.SegmentNodes == nil {
			out = in
		}
	}
	return out
}

// intentOfPod is what the annotations of a pod ask; nil = it asks to be near something in other words.
func (m *model) intentOfPod(o *object) *event.Intent {
	a := o.Annotations
	t := topologyRequest{
		Required: a[annotationRequired], Preferred: a[annotationPreferred], Unconstrained: a[annotationUnconstrained] == "true",
		SliceTopology: a[annotationSliceTopology],
	}
	t.SliceSize, _ = amount(a[annotationSliceSize])
	exclusive := a[annotationExclusive]
	if exclusive != "" && t.Required == "" {
		t.Required = exclusive
	}
	in := m.asked(&t, o.pod.gpus)
	in.ExclusiveDomain = exclusive != "" && m.cfg.levelOf(exclusive) == event.LevelDomain
	if in.Mode == event.Intent_NONE && in.SegmentNodes == nil && (o.pod.affinity || o.pod.group != "") {
		return nil
	}
	return in
}

// asked is a request in the contract's words. A level that no label key stands for stays empty: what was promised cannot be
// judged then.
func (m *model) asked(t *topologyRequest, gpus uint32) *event.Intent {
	in := &event.Intent{}
	key := ""
	switch {
	case t.Required != "":
		in.Mode, key = event.Intent_REQUIRED, t.Required
	case t.Preferred != "":
		in.Mode, key = event.Intent_PREFERRED, t.Preferred
	case t.Unconstrained:
		in.Mode = event.Intent_UNCONSTRAINED
	}
	if key != "" {
		if in.Level = m.cfg.levelOf(key); in.Level == "" {
			m.note("level_unknown", 1)
		}
	}
	if t.SliceSize > 0 {
		switch m.cfg.levelOf(t.SliceTopology) {
		case event.LevelDomain, event.LevelPartition, event.LevelBlock:
			in.SegmentNodes = m.nodesOf(t.SliceSize, gpus)
		}
	}
	return in
}

// nodesOf is how many nodes so many pods fill; nil = not known, or no whole number.
func (m *model) nodesOf(pods, gpus uint32) *uint32 {
	per := m.perNode(gpus)
	if gpus == 0 || per == 0 || pods%per != 0 {
		return nil
	}
	return new(pods / per)
}
