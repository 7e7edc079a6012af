"""What may import what: the tables that `test_imports.py` holds the four packages to."""

from __future__ import annotations

FOREIGN = {
    "querylang": {"ply"},
    "runtime": {"numpy", "numba", "llvmlite", "pyarrow", "pandas", "yaml"},
    "spark_backend": {"numpy", "pyarrow", "pandas", "yaml", "pyspark", "py4j"},
    "ensue": {"numpy", "pyarrow", "pandas", "yaml", "pyspark", "typer", "click", "pytest", "_pytest"},
}
"""Other people's packages that a package may import."""

LAYERS = {
    "querylang": "printable logger source paths errors plan syntax formatter checker compiler parameters load",
    "querylang.checker": "diagnostics checked names expressions statements event_types query",
    "runtime": "natural_names instants threads progress_line compile_notice shipped_kernels kernel_files kernel_cache kernel_inlining kernel_library kernel_pipeline machine_code kernel_choice plain_kernels compiled arrow_types yaml_reader interpreter policies columns reading admission matching results engine replay",
    "spark_backend": "durable_files class_archive early_start session errors stopping wire operator sources sinks job frames",
    "ensue": "queries parameters data_options table_paths plans rendering result background embedded compile_kernels archive_classes replay_to_file executors spark verify testing commands cli __main__ demo",
}
"""Per folder its parts, in order: a part imports only itself and what is left of it. `__init__` files are exempt."""

DOORS = {
    "querylang.plan": "automaton constant_folding describe expression library model text value_types",
    "querylang.syntax": "ast definition_files lexer parser tokens",
    "querylang.formatter": "formatting",
    "querylang.checker": "checked diagnostics event_types.catalogue query.check_query",
    "querylang.parameters": "binding given_values instances",
    "runtime.interpreter": "aggregates context decimals event_text expressions json_text statements strings value_text values",
    "runtime.policies": "durations forget_keys per_input plan_policies sizes",
    "runtime.columns": "arrival_order arrivals cell_values cold_rows expressions keys row_hashes sorting timestamps",
    "runtime.reading": "cell_parser column_names control_events row_counts schema_inference tables",
    "runtime.admission": "arrays interval_edges outcomes per_key query_clocks selection timeline_kinds",
    "runtime.matching": "choose find_every interface kernel.listing kernel.matcher trailing_waits windows",
    "runtime.results": "block_outputs discards json_objects ledger match_order match_table matched schemas",
    "runtime.engine": "engine metrics query_parts snapshot",
    "runtime.replay": "loading pieces replay steps",
    "spark_backend.wire": "bucket_labels clock clock_sources container decode file_layouts job_kernels packed_rows partition_groups program reports rows_in_files source_progress tagged_rows worker_calls worker_memory",
    "spark_backend.operator": "job_clock spark_operator worker_functions",
    "spark_backend.sources": "file_stream files formats frames listing.input_planner listing.listed_source listing.manifests pushdown reading",
    "spark_backend.sinks": "bucket_results formats micro_batch path_names",
    "spark_backend.job": "checks.name_conflicts checks.lost_outputs checks.open_waits job reports settings source_orderings status yaml_document",
    "spark_backend.frames": "bounded streaming verify",
    "ensue.rendering": "account data_frames explanation match_files replay_table status_text step_text summary text_table",
    "ensue.commands": "check compile_ahead explain fmt match output replay run status verify",
}
"""Per folder the modules that others may import."""

BORROWED = {"runtime": {"querylang.plan", "querylang.errors", "querylang.logger", "querylang.printable"}}
"""What a package may take from packages before it, where that is not everything."""
