"""Which Java is there: DynamoDB Local runs on a recent one only."""

import re
import subprocess

JAVA_VERSION_MIN = 17


def java_version() -> int:
    """The major version of the `java` on PATH; 0 if there is none."""
    try:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    # `openjdk version "17.0.15"`; up to Java 8, `java version "1.8.0_392"`.
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(version[1]) if version and said.returncode == 0 else 0
