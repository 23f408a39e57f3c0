"""Pictures and widgets of what ranks did or would do: the only place that draws."""
