"""Pictures and widgets of what ranks did or would do: the only place that draws.

By what they show:

    how they are made    view, svg_drawing, charts, palette, units; widgets; live/ has the scripts

    messages             traffic_bars, traffic_matrix, moving_values, ring_steps; hang, source_lines
    times                gantt_chart, schedule_explorer, replay_explorer, overlap, step_times
    amounts              stacked_bars
    memory               devices_needed, memory_bars, memory_curves, zero_explorer, zero_step,
                         number_range
    costs                cost_curves, scaling_curves, ratio_curves, bubble_curves, grouped_bars,
                         plan_explorer, mesh_cube, mesh_links
    servers              server_and_ring, key_owners, chain_replication, staleness,
                         parameter_server_timelines, loss_curves
    copies and parts     replicas, tensor_parallel_layer, context_explorer
    experts              token_routing, expert_groups, expert_loads
    a verdict            verdict_card
"""
