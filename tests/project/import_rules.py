"""What may import what: the tables that `test_imports.py` holds the packages to."""

from __future__ import annotations

FOREIGN = {
    "querylang": {"ply"},
    "runtime": {"numpy", "numba", "llvmlite", "pyarrow", "pandas", "yaml"},
    "job_engine": {
        "numpy",
        "pyarrow",
        "pandas",
        "yaml",
        "confluent_kafka",
        "fastavro",
        "prometheus_client",
        "deltalake",
    },
    "spark_backend": {"numpy", "pyarrow", "pandas", "pyspark", "py4j", "deltalake"},
    "ensue": {
        "numpy",
        "pyarrow",
        "pandas",
        "yaml",
        "pyspark",
        "typer",
        "click",
        "pytest",
        "_pytest",
        "polars",
        "sqlglot",
        "matplotlib",
    },
}
"""Other people's packages that a package may import."""

LAYERS = {
    "querylang": "dataclass printable system_limits source foreign_words errors system_errors plan syntax formatter checker parameters load running changes merging",
    "querylang.checker": "checked namespaces scope expressions statements blocks definitions catalogue query alike routes",
    "runtime": "temporary instants json_shapes json_reader threads progress_line compiling column_types yaml_reader exact_times file_forms interpreter policies input_policies timestamps columns reading lookup_tables admission matching results engine replay single_events why scoring",
    "job_engine": "clock chance threads errors local_path stores place arrow_files durable_files stopping delta_log delta_package delta_publishing wire yaml_document setting_keys setting_values kafka_broker kafka_settings operator sources sinks deployment deployment_sections deployment_file job local",
    "spark_backend": "versions executors launch plain_errors session source_stream spark_operator worker_functions frames batch_drafts batches frame_matching case_runs spark_machine driver",
    "job_engine.operator": "clocks bucket_state epoch_records reading ordering releasing processing joining measures step moved_buckets history_run cases",
    "job_engine.job": "checkpoint plan_rules compilation lookup_files forgotten_rows journal written_journal file_changes reports batch_writer driver commands history preflight prometheus status watch stages upkeep job",
    "ensue": "queries event_tables data_options plans changing rendering asking_why asking_jobs answer live background archive_classes embedded compile_kernels replay_to_file sweeping executors spark calls testing importing commands cli __main__ demo",
}
"""Per folder its parts, in order: a part imports only itself and what is left of it. `__init__` files are exempt."""

DOORS = {
    "querylang.plan": "constants describe encoding expression library lookups model questions remembering routing text text_forms",
    "querylang.syntax": "ast lexer parser",
    "querylang.formatter": "formatting",
    "querylang.checker": "alike catalogue checked routes",
    "runtime.compiling": "compiled files",
    "runtime.interpreter": "__init__ written_values",
    "runtime.policies": "plan_policies settings_text",
    "runtime.columns": "arrivals expressions keys rows",
    "runtime.reading": "__init__",
    "runtime.admission": "__init__",
    "runtime.matching": "choose find_every interface reference serving trailing_waits windows",
    "runtime.results": "for_users ledger match_table matched outputs schemas",
    "runtime.engine": "__init__",
    "runtime.replay": "__init__",
    "runtime.single_events": "__init__",
    "runtime.why": "__init__",
    "job_engine.wire": "clock_sources gathering packed_rows partition_groups plan_text program reports tagged_rows",
    "job_engine.operator": "bucket_state cases clocks history_run moved_buckets step",
    "job_engine.sources": "crash_marks folder.listing kinds listing.batch_log listing.command_folder listing.lister listing.manifests reading source table.commits table.reading table.settings task_reading",
    "job_engine.sinks": "bucket_results kinds names run_sinks table.settings table.writing tables topics.publishing topics.settings",
    "job_engine.job": "checkpoint.locks commands driver history.running job plan_rules preflight reports stages.start status upkeep.backup upkeep.keys upkeep.moving upkeep.results",
    "job_engine.local": "buckets",
    "spark_backend.launch": "jvm session_settings worker_python",
    "ensue.importing": "translation",
    "ensue.live": "open_queries",
    "ensue.rendering": "account data_frames explanation funnel match_tables replay_table report scores text_table",
    "ensue.commands": "all_commands common json_log",
}
"""Per folder the modules that others may import. A folder that is always loaded as a whole has its `__init__` as its one
door, which lists the names that others use."""

MOST_IMPORTS = {"job_engine.job.job": 20, "job_engine.operator.step": 20}
"""The files that tell the stages of something: so few modules they import, so that the stages are seen."""

MOST_FILES = {"querylang": 68, "runtime": 167, "job_engine": 151, "spark_backend": 21, "ensue": 63}
"""Files per package, `__init__` files among them. This bound and the next two only go down."""

MOST_DOORS = {"querylang": 20, "runtime": 29, "job_engine": 51, "spark_backend": 3, "ensue": 14}
"""Modules that others may import, over the folders of a package."""

MOST_IMPORT_LINES = {"querylang": 42, "runtime": 61, "job_engine": 73, "spark_backend": 99, "ensue": 83}
"""Lines of imports among a thousand lines."""

BORROWED = {
    "runtime": {
        "querylang.plan",
        "querylang.dataclass",
        "querylang.errors",
        "querylang.printable",
        "querylang.system_limits",
        "querylang.system_errors",
    }
}
"""What a package may take from packages before it, where that is not everything."""

WAYS_OUT = {
    "clock": (
        "time datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.date.today",
        "clock",
    ),
    "files": (
        "os open io.open pathlib shutil tempfile filecmp glob zipfile mmap numpy.fromfile numpy.load numpy.memmap numpy.save numpy.savez pandas.read_csv pandas.read_json pandas.read_parquet",
        "local_path",
    ),
    "files of Arrow": (
        "pyarrow.OSFile pyarrow.create_memory_map pyarrow.memory_map pyarrow.input_stream pyarrow.output_stream pyarrow.csv pyarrow.dataset pyarrow.feather pyarrow.json pyarrow.orc pyarrow.parquet",
        "arrow_files",
    ),
    "locks": ("fcntl", "job.checkpoint.locks"),
    "stores": ("pyarrow.fs", "stores"),
    "brokers": ("confluent_kafka", "kafka_broker"),
    "tables": ("deltalake", "delta_package delta_publishing"),
    "services": ("http ssl urllib.request", "job.watch sources.topics.avro.registry"),
    "the network": (
        "asyncio select selectors socket socketserver",
        "job.checkpoint.locks local.fork_server local.pool",
    ),
    "processes": (
        "ctypes multiprocessing signal subprocess os.WNOHANG os._exit os.fork os.getpid os.getppid os.kill os.waitpid",
        "job.checkpoint.locks job.prometheus local.fork_server local.pool local.worker sources.crash_marks stopping",
    ),
    "threads": (
        "concurrent threading queue os.register_at_fork",
        "threads",
    ),
    "chance": (
        "random secrets uuid numpy.random os.urandom",
        "chance",
    ),
    "the terminal": ("input print sys.stderr sys.stdin sys.stdout", ""),
    "the environment": (
        "os.environ os.getenv",
        "delta_package deployment_file local.driver local.fork_server local.pool stores",
    ),
}
"""How a job leaves its process: the names behind a way, and the modules of `job_engine` that may go it."""

STAYS_INSIDE = "http.client.HTTPException os.PathLike os.WIFSIGNALED os.WTERMSIG os.waitstatus_to_exitcode os.pathsep os.fspath os.stat_result os.strerror shutil.copyfileobj zipfile.is_zipfile signal.Signals signal.strsignal socket.AF_INET socket.AF_INET6 threading.Lock threading.current_thread threading.main_thread"
"""Names of the same modules that only say something."""
