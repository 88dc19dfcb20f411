"""`ottla profile`: clusters and credentials under a name."""

from __future__ import annotations

from typing import Annotated

import typer

from ottla.cli import complete, profiles
from ottla.cli.output import Output
from ottla.cli.session import group, pairs

app = group("Clusters that are known by a name, with their credentials.")

Name = Annotated[str, typer.Argument(help="The profile.", show_default=False, autocompletion=complete.profiles)]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, one object a line.")]


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List profiles; secrets are not shown.

    $ ottla profile list
    """
    known = profiles.load(profiles.config_path())
    rows = [
        {
            "name": name,
            "current": name == known.current,
            "bootstrap": properties.get("bootstrap.servers", ""),
            "properties": profiles.hidden(properties),
        }
        for name, properties in sorted(known.each.items())
    ]
    columns = {"NAME": "name", "CURRENT": "current", "BOOTSTRAP": "bootstrap"}
    empty = "There are no profiles; make one with `ottla profile add NAME --bootstrap HOST:PORT`."
    Output(as_json=as_json).rows(rows, columns, empty=empty)


@app.command("add")
def add_profile(
    name: Name,
    bootstrap: Annotated[str, typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Brokers of the cluster.")],
    properties: Annotated[
        list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="One of a client's properties.")
    ] = None,
    schema_registry: Annotated[str | None, typer.Option(metavar="URL", help="Where its schemas are.")] = None,
    as_json: Json = False,
) -> None:
    """Make a profile, or change one. The first becomes the current one.

      $ ottla profile add prod -b kafka-1:9092 -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512 \\
          -X sasl.username=ann -X sasl.password=…
    """
    from ottla.client.settings import ClientSettings, InvalidClientConfig
    from ottla.errors import StartupError

    found = {**profiles.anywhere(pairs(properties or [], "-X")), "bootstrap.servers": bootstrap}
    if schema_registry is not None:
        found["schema.registry.url"] = schema_registry
    try:
        ClientSettings.parse(found)
    except InvalidClientConfig as error:
        raise StartupError(str(error)) from None
    path = profiles.config_path()
    profiles.save(path, profiles.load(path).with_profile(name, found))
    Output(as_json=as_json).item({"name": name, "properties": profiles.hidden(found)}, f"profile {name} saved")


@app.command("use")
def use_profile(name: Name, as_json: Json = False) -> None:
    """Make a profile the current one.

    $ ottla profile use prod
    """
    path = profiles.config_path()
    profiles.save(path, profiles.load(path).using(name))
    Output(as_json=as_json).item({"name": name, "current": True}, f"profile {name} is used from now on")


@app.command("remove")
def remove_profile(name: Name, as_json: Json = False) -> None:
    """Forget a profile.

    $ ottla profile remove prod
    """
    path = profiles.config_path()
    profiles.save(path, profiles.load(path).without(name))
    Output(as_json=as_json).item({"name": name, "removed": True}, f"profile {name} removed")
